SELECT n_name, ROUND(SUM(ol_amount), 2) AS revenue FROM customer, lines, stock, supplier, nation, region
WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id AND ol_i_id = s_i_id AND o_w_id = s_w_id
  AND (s_w_id * s_i_id) % 10000 = su_suppkey AND unicode(c_state) = su_nationkey AND su_nationkey = n_nationkey
  AND n_regionkey = r_regionkey AND r_name = 'Asia'
  AND o_entry_d >= '2016-01-01 00:00:00.000000' AND o_entry_d < '2017-01-01 00:00:00.000000'
GROUP BY n_name ORDER BY revenue DESC
