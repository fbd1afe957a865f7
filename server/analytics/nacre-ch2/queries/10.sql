SELECT c_id, c_last, c_city, c_phone, n_name, SUM(ol_amount) AS revenue FROM customer, lines, nation
WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id AND o_entry_d >= '2015-10-01 00:00:00.000000'
  AND o_entry_d < '2016-01-01 00:00:00.000000' AND n_nationkey = unicode(c_state)
GROUP BY c_id, c_last, c_city, c_phone, n_name ORDER BY revenue DESC LIMIT 20
