SELECT CAST(substr(o_entry_d, 1, 4) AS INT) AS l_year,
       ROUND(SUM(CASE WHEN n2.n_name = 'Germany' THEN ol_amount ELSE 0 END) / NULLIF(SUM(ol_amount), 0), 2) AS mkt_share
FROM item, supplier, stock, lines, customer, nation n1, nation n2, region
WHERE i_id = s_i_id AND i_id = ol_i_id AND ol_supply_w_id = s_w_id AND (s_w_id * s_i_id) % 10000 = su_suppkey
  AND c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id AND n1.n_nationkey = unicode(c_state)
  AND n1.n_regionkey = r_regionkey AND r_name = 'Europe' AND ol_i_id < 1000 AND su_nationkey = n2.n_nationkey
  AND o_entry_d BETWEEN '2017-01-01 00:00:00.000000' AND '2018-12-31 00:00:00.000000' AND i_data LIKE '%b'
GROUP BY 1 ORDER BY 1
