SELECT n_name, CAST(substr(o_entry_d, 1, 4) AS INT) AS l_year, SUM(ol_amount) AS amount
FROM item, stock, supplier, lines, nation
WHERE ol_i_id = s_i_id AND ol_supply_w_id = s_w_id AND (s_w_id * s_i_id) % 10000 = su_suppkey AND ol_i_id = i_id
  AND su_nationkey = n_nationkey AND i_data LIKE '%bb'
GROUP BY 1, 2 ORDER BY 1, 2 DESC
